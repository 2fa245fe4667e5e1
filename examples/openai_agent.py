"""An agent with skills against any server that speaks the OpenAI wire format, in plain Python.

    OPENAI_API_KEY=... python examples/openai_agent.py "Compare a.txt with b.txt"

OPENAI_BASE_URL and OPENAI_MODEL choose another server (Ollama, vLLM, llama.cpp) and model.
"""

import json
import os
import sys
import urllib.request
from typing import Any

import vademecum as vm

BASE = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
MODEL = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
MAX_TURNS = 12


def ask(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Call the model with messages and tools, and return its message."""
    body = json.dumps({"model": MODEL, "messages": messages, "tools": tools}).encode()
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
    }
    request = urllib.request.Request(f"{BASE}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        message: dict[str, Any] = json.load(response)["choices"][0]["message"]
    return message


def run(question: str) -> str:
    """Ask the model and run its tool calls, until it answers."""
    kit = vm.Toolkit(vm.build_index())
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": kit.system_prompt()},
        {"role": "user", "content": question},
    ]
    for _ in range(MAX_TURNS):
        message = ask(messages, kit.schemas("openai", listed=False))
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"] or ""
        for call in message["tool_calls"]:
            result = kit.call(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result.text})
    return "No answer within the number of turns."


if __name__ == "__main__":
    print(run(" ".join(sys.argv[1:]) or "Which skills do you have?"))
