"""A tokens file that tests write, and the headers of its callers.

    tokens = TokensFile(tmp_path, billing={"read": ["orders*"]})
    web = NativeApp(tokens_file=tokens.setting)
    web.get("/v1/topics/orders", headers=tokens.of("billing"))

The token of a caller is its name with letters behind it, so that tests can say who calls; real ones are
random.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from service.admission.tokens_file import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class TokensFile:
    """The file and its content."""

    def __init__(self, folder: Path, **callers: Mapping[str, Any]) -> None:
        self.path = folder / "tokens.toml"
        self.write(**callers)

    @property
    def setting(self) -> str:
        return str(self.path)

    def write(self, **callers: Mapping[str, Any]) -> None:
        """The file anew, whole at once: read, produce and limits by the caller's name."""
        text = "\n".join(self.entry(name, **members) for name, members in callers.items())
        new = self.path.with_suffix(".new")
        new.write_text(text or "token = []\n")
        new.rename(self.path)

    def entry(self, name: str, **members: Any) -> str:
        """One entry as TOML."""
        written = {"name": name, "sha256": digest_of(self.token(name).encode()).hex(), **members}
        return "\n".join(
            ["[[token]]", *(f"{key} = {json.dumps(value)}" for key, value in written.items()), ""]
        )

    def token(self, name: str) -> str:
        return f"{name}-0123456789abcdef"

    def of(self, name: str) -> dict[str, str]:
        """The header of a request of that caller."""
        return {"authorization": f"Bearer {self.token(name)}"}
