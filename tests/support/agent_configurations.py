"""Configurations of agents, as people have them and as no one should: bytes by name."""

# What each may hold is what agents' documentation shows; none has an entry of ours.
CLAUDE = {
    "missing": None,
    "empty": b"",
    "white space only": b"\n  \n",
    "an empty object": b"{}",
    "an empty object on two lines": b"{\n}\n",
    "an empty object with a space": b"{ }\n",
    "a byte order mark alone": b"\xef\xbb\xbf",
    "typical": b"""{
  "$schema": "https://json.schemastore.org/claude-code-settings.json",
  "model": "opus",
  "permissions": {
    "allow": ["Bash(npm run lint)", "Read(~/.zshrc)"],
    "deny": [
      "Read(./.env)"
    ]
  },
  "hooks": {
    "PreToolUse": [
      {
        "matcher": "Edit|Write",
        "hooks": [{"type": "command", "command": "./check.sh"}]
      }
    ]
  },
  "env": {"FOO": "bar"}
}
""",
    "a session start of its own": b"""{
    "hooks": {
        "SessionStart": [
            {
                "matcher": "startup",
                "hooks": [
                    {
                        "type": "command",
                        "command": "git status --short"
                    }
                ]
            }
        ]
    },
    "statusLine": {
        "type": "command",
        "command": "~/.claude/statusline.sh",
        "padding": 0
    }
}""",
    "tabs": b'{\n\t"model": "opus",\n\t"hooks": {\n\t\t"Stop": []\n\t}\n}\n',
    "windows": b'{\r\n  "model": "opus",\r\n  "env": {\r\n    "A": "1"\r\n  }\r\n}\r\n',
    "a byte order mark": b'\xef\xbb\xbf{\r\n  "model": "opus"\r\n}',
    "one line": b'{"model":"opus","hooks":{"Stop":[{"hooks":[]}]},"env":{}}',
    "one line with spaces": b'{ "model": "opus", "env": { "A": "1" } }\n',
    "comments": b"""// my settings
{
  // the model
  "model": "opus", /* really */
  "hooks": {
    // "SessionStart": [],
    "Stop": [ // guards
      {"hooks": []} // none yet
    ] // end of Stop
    // end of hooks
  } // last
  // "statusLine": {}
}
// the end""",
    "trailing commas": b'{\n  "env": {"A": "1",},\n  "hooks": {"Stop": [1, 2,],},\n}\n',
    "duplicate keys": b'{\n  "hooks": {"Stop": []},\n  "hooks": {"Stop": [1]},\n  "a": 1,\n  "a": 2\n}\n',
    "unknown keys": b'{\n  "hooks": {"NotYetInvented": [{"later": true}]},\n  "x": {"y": [null, 1.50, 1e3]}\n}\n',
    "empty hooks": b'{\n  "hooks": {}\n}\n',
    "empty hooks with room": b'{\n  "hooks": {\n\n  },\n  "mcpServers": {  }\n}\n',
    "an empty event": b'{"hooks": {"SessionStart": [ ]}}',
    "no indentation": b'{\n"model": "opus",\n"env": {\n"A": "1"\n}\n}\n',
    "old Macintosh": b'{\r  "model": "opus"\r}\r',
    "escapes": '{"\\u0068ooks": {"Stop": []}, "名": "\\ud83d\\ude00 é", "\\/": "\\""}\n'.encode(),
    "an odd layout": b'{"a": 1,\n      "b": [1,\n  2], "c"\n :\n {}\n  ,\n"d":0 }  \n\n\n',
    "servers": b"""{
  "numStartups": 7,
  "mcpServers": {
    "github": {"type": "http", "url": "https://example.invalid/mcp"}
  },
  "projects": {"/home/u/p": {"history": []}}
}
""",
}

# A sentence must name why each is refused, and it must stay as it is.
REFUSED = {
    "not JSON": b"model = opus\n",
    "cut off": b'{"hooks": {"Stop": [',
    "a missing comma": b'{"a": 1 "b": 2}',
    "two documents": b"{} {}",
    "an array": b"[]",
    "a string": b'"hooks"',
    "hooks is an array": b'{"hooks": []}',
    "hooks is null": b'{"hooks": null}',
    "the event is an object": b'{"hooks": {"SessionStart": {}}}',
    "single quotes": b"{'a': 1}",
    "an open comment": b'{"a": 1} /* and so on',
    "a bare word": b'{"a": NaN}',
    "a control character": b'{"a": "\x01"}',
    "not UTF-8": b'{"a": "\xff"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "very deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep enough to hurt": b"[" * 101 + b"]" * 101,
    "a conflict": b'{\n<<<<<<< HEAD\n  "a": 1\n=======\n  "a": 2\n>>>>>>> other\n}\n',
    "too many digits": b'{"a": ' + b"9" * 5000 + b"}",
}

TOML = {
    "missing": None,
    "empty": b"",
    "a comment": b"# nothing yet\n",
    "typical": b"""model = "gpt-5"
approval_policy = "on-request"

[features]
hooks = true

[mcp_servers.docs]
command = "docs-mcp"
args = ["--fast"]

[mcp_servers.docs.env]
TOKEN_FILE = "/run/token"

[projects."/home/u/p"]
trust_level = "trusted"
""",
    "no line end": b'model = "gpt-5"',
    "windows": b'model = "gpt-5"\r\n\r\n[tui]\r\ntheme = "dark"\r\n',
    "blank lines at the end": b'model = "gpt-5"\n\n\n',
    "a text that looks like ours": b'notes = """\n[mcp_servers.intercore]\ncommand = "x"\n"""\n',
    "inline": b'tui = {theme = "dark"}\n',
}
TOML_REFUSED = {
    "not TOML": b"{}",
    "servers in line": b"mcp_servers = {}\n",
    "a key twice": b"a = 1\na = 2\n",
    "not UTF-8": b'a = "\xff"\n',
}
