"""The stability matrix: the newest usable vector of each other member, and the least entry of every column.

M, SV and Min of Younes 2023, 5.1.1 and Algorithm 7, with the own row left out of the minimum. The own row dominates all
others, and a column that Min assigns to it would not be evaluated when another member's row rises.
"""


class StabilityMatrix:
    """Rows by member, `stable` by column. `entries` counts the visited entries of rows.

    own: the position of this member.
    size: the number of members.
    """

    __slots__ = ("_held", "_own", "_rows", "entries", "stable")

    def __init__(self, own: int, size: int) -> None:
        self._own = own
        self._rows: list[tuple[int, ...]] = [(0,) * size] * (size - 1)
        # Min inverted: for each row the columns whose least entry it holds. Only these can change with the row.
        self._held: list[list[int]] = [list(range(size)), *([] for _ in range(size - 2))]
        self.stable: list[int] = [0] * size
        self.entries: int = 0

    def _place(self, position: int) -> int:
        return position if position < self._own else position - 1

    def row(self, position: int) -> tuple[int, ...]:
        """What the member at `position` has delivered, as far as known."""
        return self._rows[self._place(position)]

    def adopt(self, position: int, row: tuple[int, ...]) -> list[tuple[int, int, int]]:
        """Adopt a newer row of the member at `position`. Returns (column, old, new) for each column that rose.

        All that this member had sent before that vector must be delivered here.
        """
        place = self._place(position)
        rows, stable = self._rows, self.stable
        rows[place] = row
        columns = self._held[place]
        if not columns:
            return []
        stay = self._held[place] = []
        rose = []
        for column in columns:
            old = stable[column]
            if row[column] == old:
                self.entries += 1
                stay.append(column)
                continue
            # The holder is the first row with the least entry. Rows above it have risen already, and never fall.
            for other in range(place + 1, len(rows)):
                if rows[other][column] == old:
                    self.entries += other - place + 1
                    self._held[other].append(column)
                    break
            else:
                values = [other_row[column] for other_row in rows]
                self.entries += len(rows) - place + len(values)
                least = stable[column] = min(values)
                self._held[values.index(least)].append(column)
                rose.append((column, old, least))
        return rose

    def words(self) -> int:
        """Words held now: one for each entry of the rows, of SV and of Min."""
        size = len(self.stable)
        return size * len(self._rows) + 2 * size
