"""The way to `icctl.direct`, whose libraries may live where only `site` looks."""

from icctl.hot import Request


def run(request: Request, limit: float) -> int:
    try:
        from icctl.direct import run_here
    except ImportError:
        import site

        site.main()
        from icctl.direct import run_here
    return run_here(request, limit)
