"""A model's server on loopback that agents talk to instead of a model: it plays a script.

It speaks the protocols of Anthropic (`/v1/messages`), OpenAI (`/responses`) and Google
(`:streamGenerateContent`), as far as Claude Code, Codex and Gemini CLI need them.  It keeps no
state: a request carries the whole conversation, and the answer is the step that follows the model's
turns since the last prompt that the script knows.  So retries, and what an agent asks beside
(a title, a summary), do no harm.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, NamedTuple

Json = dict[str, Any]


class Call(NamedTuple):
    """The model wants a tool to be called; what the request is said to have cost.

    An agent with a limit below it compacts the conversation.
    """

    tool: str
    arguments: Any  # a text: to what OpenAI calls a custom tool
    tokens: int = 1


# A prompt, and how the model goes on after it: calls, or what it says.
Script = dict[str, list[Call | str]]
LAST = "Done."


class Turn(NamedTuple):
    by_model: bool
    text: str


class Model:
    """`requests` are the bodies of what was asked of the model, in their order."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Json] = []
        self.url = ""
        self._lock = Lock()

    def answer(self, path: str, body: Json) -> bytes | None:
        """The stream that answers a request; None if it is not for a model."""
        path = path.partition("?")[0]
        dialect = next((d for end, d in _DIALECTS.items() if path.endswith(end)), None)
        if dialect is None:
            return None
        with self._lock:
            self.requests.append(body)
            number = len(self.requests)
        step = self._step(dialect.turns(body))
        if isinstance(step, Call) and f'"{step.tool.rpartition(".")[2]}"' not in json.dumps(
            dialect.tools(body)
        ):
            step = LAST  # something beside, like a title for the conversation
        return "".join(dialect.stream(step, number)).encode()

    def _step(self, turns: list[Turn]) -> Call | str:
        said = 0
        for turn in reversed(turns):
            said += turn.by_model
            steps = next((s for prompt, s in self.script.items() if prompt in turn.text), None)
            if steps is not None and not turn.by_model:
                return steps[said] if said < len(steps) else LAST
        return LAST


@contextmanager
def serving(script: Script) -> Iterator[Model]:
    model = Model(script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length") or 0))
            try:
                answer = model.answer(self.path, json.loads(sent or b"{}"))
            except ValueError:
                answer = None
            self._reply(answer, "text/event-stream")

        def do_GET(self) -> None:
            self._reply(None, "application/json")

        do_HEAD = do_GET  # noqa: N815 - the name is the library's

        def _reply(self, answer: bytes | None, kind: str) -> None:
            self.send_response(404 if answer is None else 200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(answer or b"")))
            self.end_headers()
            self.wfile.write(answer or b"")

        def log_message(self, *_told: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()


# --- dialects -------------------------------------------------------------------------------------


class Dialect(NamedTuple):
    turns: Callable[[Json], list[Turn]]
    tools: Callable[[Json], Any]
    stream: Callable[[Call | str, int], Iterator[str]]


def _event(data: Json) -> str:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"


def _turn(by_model: bool, content: object) -> Turn:
    return Turn(by_model, json.dumps(content, ensure_ascii=False))


def _anthropic_turns(body: Json) -> list[Turn]:
    return [_turn(m["role"] == "assistant", m["content"]) for m in body["messages"]]


def _anthropic(step: Call | str, number: int) -> Iterator[str]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-x",
               "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    yield _event({"type": "message_start", "message": message})
    if isinstance(step, Call):
        block = {"type": "tool_use", "id": f"toolu_{number:02}", "name": step.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step.arguments)}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": step}
    yield _event({"type": "content_block_start", "index": 0, "content_block": block})
    yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event({"type": "content_block_stop", "index": 0})
    ended = {"stop_reason": "tool_use" if isinstance(step, Call) else "end_turn"}
    yield _event({"type": "message_delta", "delta": ended, "usage": usage})
    yield _event({"type": "message_stop"})


def _openai_turns(body: Json) -> list[Turn]:
    said = {"function_call", "custom_tool_call"}
    items = [item for item in body["input"] if item.get("type") != "reasoning"]
    return [_turn(i.get("type") in said or i.get("role") == "assistant", i) for i in items]


def _openai(step: Call | str, number: int) -> Iterator[str]:
    item: Json = {"type": "message", "role": "assistant", "id": f"msg_{number}"}
    if isinstance(step, str):
        item["content"] = [{"type": "output_text", "text": step, "annotations": []}]
    elif isinstance(step.arguments, str):
        item = {"type": "custom_tool_call", "id": f"ctc_{number}", "call_id": f"call_{number:02}",
                "name": step.tool, "input": step.arguments}  # fmt: skip
    else:
        space, _, name = step.tool.rpartition(".")
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number:02}",
                "name": name, "arguments": json.dumps(step.arguments)}  # fmt: skip
        item |= {"namespace": space} if space else {}
    tokens = step.tokens if isinstance(step, Call) else 1
    usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    response = {"id": f"resp_{number}", "usage": usage}
    yield _event({"type": "response.created", "response": {"id": f"resp_{number}"}})
    yield _event({"type": "response.output_item.done", "output_index": 0, "item": item})
    yield _event({"type": "response.completed", "response": response})


def _google_turns(body: Json) -> list[Turn]:
    return [_turn(c.get("role") == "model", c["parts"]) for c in body["contents"]]


def _google(step: Call | str, number: int) -> Iterator[str]:
    part: Json = {"text": step}
    if isinstance(step, Call):
        part = {"functionCall": {"name": step.tool, "args": step.arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    answer = {"candidates": [candidate], "usageMetadata": usage, "responseId": f"r-{number}"}
    yield f"data: {json.dumps(answer)}\n\n"


def _tools(body: Json) -> Any:
    return body.get("tools", [])


def _everything(body: Json) -> Any:
    """Codex tells newer models their tools within the conversation."""
    return body


_DIALECTS = {
    "/v1/messages": Dialect(_anthropic_turns, _tools, _anthropic),
    "/responses": Dialect(_openai_turns, _everything, _openai),
    ":streamGenerateContent": Dialect(_google_turns, _tools, _google),
}
