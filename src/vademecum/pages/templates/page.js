(() => {
  const root = document.documentElement;
  root.lang = /^zh/i.test(navigator.language || "") ? "zh" : "en";
  document.addEventListener("DOMContentLoaded", () => {
    if (root.lang !== "zh") return;
    document.querySelectorAll("[data-zh]").forEach((each) => {
      if (each.tagName === "TITLE") each.textContent = each.dataset.zh;
      else each.setAttribute(each.title ? "title" : "aria-label", each.dataset.zh);
    });
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-expand]");
    if (!button) return;
    const open = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(open));
    document.querySelectorAll("details").forEach((each) => { each.open = open; });
  });
})();
