"""What methods answer: structs whose fields are the JSON fields of the API and of `--json`."""

import msgspec


class Result(msgspec.Struct, omit_defaults=True, gc=False):
    """Optional fields appear only when they say something."""
