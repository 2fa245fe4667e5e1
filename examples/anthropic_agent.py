"""An agent with skills against the Anthropic wire format, in plain Python.

    ANTHROPIC_API_KEY=... python examples/anthropic_agent.py "Compare a.txt with b.txt"

ANTHROPIC_BASE_URL and ANTHROPIC_MODEL choose another server and model.
"""

import json
import os
import sys
import urllib.request
from typing import Any

import vademecum as vm

BASE = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-4-5")
MAX_TURNS = 12


def ask(system: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Call the model with messages and tools, and return the blocks of its message."""
    asked = {"model": MODEL, "max_tokens": 4096, "system": system, "messages": messages, "tools": tools}
    headers = {
        "Content-Type": "application/json",
        "x-api-key": os.environ.get("ANTHROPIC_API_KEY", ""),
        "anthropic-version": "2023-06-01",
    }
    request = urllib.request.Request(f"{BASE}/v1/messages", json.dumps(asked).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        blocks: list[dict[str, Any]] = json.load(response)["content"]
    return blocks


def run(question: str) -> str:
    """Ask the model and run its tool calls, until it answers."""
    kit = vm.Toolkit(vm.build_index())
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for _ in range(MAX_TURNS):
        blocks = ask(kit.system_prompt(), messages, kit.schemas("anthropic", listed=False))
        messages.append({"role": "assistant", "content": blocks})
        results = []
        for block in blocks:
            if block["type"] == "tool_use":
                result = kit.call(block["name"], block["input"])
                answer = {"type": "tool_result", "tool_use_id": block["id"], "content": result.text}
                results.append(answer | {"is_error": not result.ok})
        if not results:
            return "".join(block.get("text", "") for block in blocks)
        messages.append({"role": "user", "content": results})
    return "No answer within the number of turns."


if __name__ == "__main__":
    print(run(" ".join(sys.argv[1:]) or "Which skills do you have?"))
