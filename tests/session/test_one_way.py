"""Whatever serves a model reaches skills, files, tools and processes only through a session."""

from __future__ import annotations

import grimp

# Each of these does something that a rule must be asked about first.
GUARDED = (
    "loader.loading",
    "policy.gate",
    "sandbox.process",
    "tools.network",
    "tools.proxy",
    "tools.file_reading",
    "tools.job",
    "tools.writing",
)
# Who may import them directly, and why.
ALLOWED = {
    "session": "the one way through",
    "sandbox": "its own parts",
    "tools": "its own parts",
    "agent.replay": "compares what was loaded with what would be; nothing of it reaches a model",
    "cli.permissions": "explains a decision in words",
    "cli.sharing.linking": "puts skills where other agents look, and asks the person",
}


def test_only_the_session_reaches_what_rules_guard() -> None:
    graph = grimp.build_graph("vademecum", cache_dir=None)
    importers: dict[str, set[str]] = {}
    for guarded in GUARDED:
        for module in graph.find_modules_that_directly_import(f"vademecum.{guarded}"):
            importers.setdefault(module.removeprefix("vademecum."), set()).add(guarded)
    packages = {
        module: next((a for a in ALLOWED if f"{module}.".startswith(f"{a}.")), "") for module in importers
    }
    assert {module: importers[module] for module, found in packages.items() if not found} == {}
    assert set(packages.values()) == set(ALLOWED)  # none that nobody needs


def test_everything_that_serves_a_model_holds_a_session() -> None:
    graph = grimp.build_graph("vademecum", cache_dir=None)
    for module in (
        "agent.agent",
        "agent.loop",
        "integrations.toolkit",
        "integrations.manager",
        "integrations.mcp.clients",
        "cli.running",
        "cli.finding",
    ):
        assert "vademecum.session.session" in graph.find_modules_directly_imported_by(
            f"vademecum.{module}"
        ), module
