"""A relaxation in place, whose loops must run in order; what weft says of them, and what happens when it is followed."""

import weft


def relax(y):
    rows, columns = y.shape
    for r in range(1, rows - 1):
        for c in range(1, columns - 1):
            y[r, c] = 0.25 * (y[r - 1, c] + y[r + 1, c] + y[r, c - 1] + y[r, c + 1])


def relax_from_a_copy(y):
    rows, columns = y.shape
    old = y.clone()
    for r in range(1, rows - 1):
        for c in range(1, columns - 1):
            y[r, c] = 0.25 * (old[r - 1, c] + old[r + 1, c] + old[r, c - 1] + old[r, c + 1])


def main() -> None:
    print(weft.analyze(relax))
    print()
    print(weft.analyze(relax_from_a_copy))


if __name__ == "__main__":
    main()
