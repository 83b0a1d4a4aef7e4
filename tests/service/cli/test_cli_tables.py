"""What people see on a terminal."""

from __future__ import annotations

from service.cli.options import render


def test_columns_are_as_wide_as_they_need_and_numbers_stand_to_the_right() -> None:
    assert render(("topic", "partitions"), [("orders", 12), ("a", 3)]) == (
        "topic   partitions\norders          12\na                3"
    )


def test_what_is_not_known_is_a_dash_and_lists_are_joined() -> None:
    assert render(("leader", "isr", "internal"), [(None, [1, 2], True), (1, [], False)]) == (
        "leader  isr  internal\n     -  1,2  yes\n     1  -    no"
    )


def test_no_rows_leave_the_head() -> None:
    assert render(("topic",), []) == "topic"
