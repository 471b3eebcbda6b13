"""The way to `icctl.direct`, whose libraries may live where only `site` looks."""

from icctl.client import Request


def run(request: Request, limit: float) -> int:
    _find_libraries()
    from icctl.direct import run_here

    return run_here(request, limit)


def only_reads(request: Request) -> bool:
    """Whether the command changes nothing, whatever became of it; False: nobody can tell."""
    try:
        _find_libraries()
        from icctl.direct import changes_nothing

        return changes_nothing(request)
    except Exception:  # noqa: BLE001 -- it is asked for a sentence about another failure
        return False


def _find_libraries() -> None:
    try:
        import icctl.direct  # noqa: F401 -- whether it can be
    except ImportError:
        import site

        site.main()
