"""Line positions in a text: starts, indentation, comments above. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lines:
    """Offsets in a text, counted in characters."""

    text: str

    def start(self, place: int) -> int:
        """Returns the start of the place's line."""
        return self.text.rfind("\n", 0, place) + 1

    def column(self, place: int) -> int:
        return place - self.start(place)

    def indent(self, place: int) -> str:
        """Returns the leading blanks of the place's line."""
        line = self.text[self.start(place) : place]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def is_first(self, place: int) -> bool:
        """Returns whether only blanks precede the place on its line."""
        return not self.text[self.start(place) : place].strip(" ")

    def after(self, end: int) -> int:
        """Returns the start of the next line after `end`; the text's end if there is none."""
        if self.text[end - 1 : end] == "\n":
            return end
        found = self.text.find("\n", end)
        return len(self.text) if found < 0 else found + 1

    def rest(self, end: int) -> str:
        """Returns the rest of the line after a place."""
        return self.text[end : self.after(end)] if self.text[end - 1 : end] != "\n" else ""

    def dash(self, column: int, behind: int, before: int) -> int:
        """Returns the first dash in `column` of a line that starts after `behind`, up to `before`."""
        line = self.after(behind)
        while self.text[line + column : line + column + 1] != "-" and line < before:
            line = self.after(line + 1)
        return line + column

    def above_comments(self, place: int, not_before: int) -> int:
        """Returns the start of the line, or of the comments directly above with the same indentation."""
        begin, column = self.start(place), self.column(place)
        while begin > not_before:
            above = self.start(begin - 1)
            line = self.text[above:begin]
            if (
                above < not_before
                or len(line) - len(line.lstrip(" ")) != column
                or line.lstrip(" ")[:1] != "#"
            ):
                break
            begin = above
        return begin
