"""Printing measurements as they come."""


class Table:
    def __init__(self) -> None:
        self._missed = 0
        print(f"{'what':<58} {'measured':>14} {'against':>16} {'ratio':>8} {'limit':>8}")

    def ratio(
        self,
        what: str,
        measured: float,
        floor: float,
        *,
        unit: str,
        most: float = 0,
        least: float = 0,
    ) -> None:
        """`most`: the ratio must not be above it; `least`: nor below it."""
        ratio = measured / floor
        missed = bool((most and ratio > most) or (least and ratio < least))
        self._missed += missed
        limit = f"<= {most:g}" if most else f">= {least:g}" if least else ""
        print(
            f"{what:<58} {measured:>11.2f} {unit:<2} {floor:>13.2f} {unit:<2}"
            f" {ratio:>8.2f} {limit:>8}{'  miss' if missed else ''}",
            flush=True,
        )

    def note(self, what: str, text: str) -> None:
        print(f"{what:<58} {text}", flush=True)

    def close(self) -> int:
        print(f"{self._missed} beyond their limit" if self._missed else "all within their limits")
        return 1 if self._missed else 0
