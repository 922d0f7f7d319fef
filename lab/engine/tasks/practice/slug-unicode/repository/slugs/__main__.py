"""python -m slugs TITLE..."""

import argparse

from slugs import Registry


def main(argv=None):
    parser = argparse.ArgumentParser(prog="slugs", description="Print a slug for each title.")
    parser.add_argument("titles", nargs="+", metavar="TITLE")
    parser.add_argument("--unicode", action="store_true", help="keep letters of any script")
    parser.add_argument("--limit", type=int, default=80, metavar="N")
    options = parser.parse_args(argv)
    registry = Registry(unicode=options.unicode, limit=options.limit)
    for title in options.titles:
        print(registry.claim(title))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
