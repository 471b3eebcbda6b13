"""The words that our decoders know: chance alone would hardly spell them."""

import msgspec

from icd.app import registry
from icd.app.reference import completion as outline
from icd.config import Settings
from icd.features.database.export import kinds


def words() -> set[bytes]:
    found = {"jsonrpc", "2.0", "RUNID", "/project", "mirror.channels"}
    for leaf in outline.leaves():
        found |= {leaf.name.replace(" ", "\0"), *(option.name for option in leaf.options)}
        found |= {word for option in leaf.options if option.value for word, _ in option.value.words}
    found |= {option.name for option in outline.everywhere()}
    for method in registry.every():
        found |= {method.name, *(f'"{name}":' for name in method.params.__struct_fields__)}
    for table, kind in kinds().items():
        found |= {f'"kind":"{table}"'}
        found |= {f'"{name}":' for name in kind.__struct_encode_fields__}
    found |= {field.name for field in msgspec.structs.fields(Settings)}
    return {word.encode() for word in found}
