"""Signals as numbers: the module `signal` would cost each runner a megabyte and four ms."""

TYPE_CHECKING = False  # the module `typing` is larger still
if TYPE_CHECKING:
    from signal import (
        SIG_BLOCK,
        SIG_DFL,
        SIGCHLD,
        SIGCONT,
        SIGHUP,
        SIGINT,
        SIGKILL,
        SIGPIPE,
        SIGTERM,
        SIGXFSZ,
        pidfd_send_signal,
        pthread_sigmask,
        signal,
        sigtimedwait,
        strsignal,
    )
else:
    from _signal import (
        SIG_BLOCK,
        SIG_DFL,
        SIGCHLD,
        SIGCONT,
        SIGHUP,
        SIGINT,
        SIGKILL,
        SIGPIPE,
        SIGTERM,
        SIGXFSZ,
        pidfd_send_signal,
        pthread_sigmask,
        signal,
        sigtimedwait,
        strsignal,
    )

# Which Python ignores, and a program that it starts should not.
IGNORED_BY_PYTHON = (SIGPIPE, SIGXFSZ)

__all__ = [
    "IGNORED_BY_PYTHON",
    "SIGCHLD",
    "SIGCONT",
    "SIGHUP",
    "SIGINT",
    "SIGKILL",
    "SIGTERM",
    "SIG_BLOCK",
    "SIG_DFL",
    "pidfd_send_signal",
    "pthread_sigmask",
    "signal",
    "sigtimedwait",
    "strsignal",
]
