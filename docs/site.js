// The copy button of a console block copies the commands, without "$ " and without their output.
// This listener runs before the theme's own, which prefers the attribute that is set here.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-clipboard-target]");
  const block = button && button.closest(".language-console");
  if (!block) return;
  const lines = block.querySelector("code").textContent.split("\n");
  const commands = lines.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2));
  button.setAttribute("data-clipboard-text", commands.join("\n") + "\n");
}, true);
