"""`icctl events cursor …`"""

import click
import msgspec

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.errors import Usage
from icd.features.events import cursor_methods as methods
from icd.features.events.commands import SEQ
from icd.features.events.store import Marks

# What the original calls a cursor's payload, and what is ours.
_PAYLOAD = (
    "phase",
    "dispatch",
    "interspect",
    "discovery",
    "seq",
    "lag",
    "durable",
    "expires_at",
    "behind",
)


@click.command("list", add_help_option=False, short_help="List the cursors.")
def list_(world: World) -> Ask:
    """Print each cursor and where it is: C, or C:RUN, a tab, and JSON.

    phase, dispatch, interspect and discovery are the last ids of these sources before it; lag is
    how many events the log has after it; behind says that events after it were pruned.

    \b
    Example:
      icctl events cursor list
    """

    def show(found: list[methods.Place]) -> Output:
        return render.text(*(render.columns(_key(place), _payload(place)) for place in found))

    return Ask("cursor.list", methods.List(), render.to_json if world.json else show)


@click.command("get", add_help_option=False, short_help="Show a cursor; exit 1 if there is none.")
@click.argument("consumer")
@click.option("--run", default="", metavar="RUN", help="Its cursor for this run.")
def get(world: World, *, consumer: str, run: str) -> Ask:
    """Print where a cursor is, as JSON; exit 1 if there is none.

    \b
    Examples:
      icctl events cursor get notifier
      icctl events cursor get notifier --run="$RUN"
    """

    def show(place: methods.Place | None) -> Output:
        if place is None:
            return Output(1)
        return render.to_json(place) if world.json else render.text(_payload(place))

    return Ask("cursor.get", methods.Get(consumer, run_id=run), show)


@click.command("register", add_help_option=False, short_help="Have a cursor.")
@click.argument("consumer")
@click.option("--durable", is_flag=True, help="Keep it for ever, not for a day without use.")
def register(world: World, *, consumer: str, durable: bool) -> Ask:
    """Make a cursor at the oldest event, unless the consumer has one: that stays where it is.

    A durable one never expires, and events are not pruned before it has read them.

    \b
    Examples:
      icctl events cursor register notifier
      icctl events cursor register index --durable
    """

    def show(place: methods.Place) -> Output:
        kind = "durable" if place.durable else "ttl: 24h"
        return render.text(f"registered {consumer} ({kind})")

    params = methods.Register(consumer, durable=durable)
    return Ask("cursor.register", params, render.to_json if world.json else show)


@click.command("set", add_help_option=False, short_help="Move a cursor, back or forth.")
@click.argument("consumer")
@click.argument("seq", required=False, type=SEQ, metavar="[SEQ]")
@click.option("--run", default="", metavar="RUN", help="Its cursor for this run.")
@click.option("--phase", type=SEQ, metavar="ID", help="Instead of SEQ: the last phase event.")
@click.option("--dispatch", type=SEQ, metavar="ID", help="And the last one of a dispatch.")
@click.option("--discovery", type=SEQ, metavar="ID", help="And of a discovery.")
def set_(
    world: World,
    *,
    consumer: str,
    seq: int | None,
    run: str,
    phase: int | None,
    dispatch: int | None,
    discovery: int | None,
) -> Ask:
    """Say that a consumer has read up to SEQ, whether it is further by now or not.

    In the terms of the original it is the last id of each source: then it goes on with the first
    event that lies after one of them.

    \b
    Examples:
      icctl events cursor set notifier 41
      icctl events cursor set notifier --phase=9 --dispatch=4
    """
    given = [mark for mark in (phase, dispatch, discovery) if mark is not None]
    if (seq is None) != bool(given):
        raise Usage("give either SEQ or --phase, --dispatch and --discovery")
    marks = Marks(phase or 0, dispatch or 0, discovery or 0)
    params = methods.Set(consumer, seq, run_id=run, marks=marks)
    return Ask("cursor.set", params, render.to_json if world.json else _silent)


@click.command("ack", add_help_option=False, short_help="Acknowledge events.")
@click.argument("consumer")
@click.argument("seq", type=SEQ)
@click.option("--run", default="", metavar="RUN", help="Its cursor for this run.")
def ack(world: World, *, consumer: str, seq: int, run: str) -> Ask:
    """Say that a consumer has dealt with everything up to SEQ; never moves it back.

    \b
    Example:
      icctl events cursor ack index 57
    """
    params = methods.Ack(consumer, seq, run_id=run)
    return Ask("cursor.ack", params, render.to_json if world.json else _silent)


@click.command("reset", add_help_option=False, short_help="Forget the cursors of a consumer.")
@click.argument("consumer")
def reset(world: World, *, consumer: str) -> Ask:
    """Forget where a consumer was, in all runs; C:RUN forgets one run.

    It starts again at the oldest event.
    Prints reset or not found, and exits 0 either way.

    \b
    Example:
      icctl events cursor reset notifier
    """

    def show(result: methods.ResetCount) -> Output:
        return render.text("reset" if result.reset else "not found")

    return Ask("cursor.reset", methods.Reset(consumer), render.to_json if world.json else show)


def _key(place: methods.Place) -> str:
    return f"{place.consumer}:{place.run_id}" if place.run_id else place.consumer


def _payload(place: methods.Place) -> str:
    return msgspec.json.encode({name: getattr(place, name) for name in _PAYLOAD}).decode()


def _silent(_result: object) -> Output:
    return Output(0)


COMMANDS = [list_, get, register, set_, reset, ack]
