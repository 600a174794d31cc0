"""Commands that run the product: server and learner together or apart, and the model's files."""

from __future__ import annotations

import typer

from openclaw_rl import config, process_environment
from openclaw_rl.cli.flags import (
    ConfigFile,
    DataDir,
    Engine,
    EngineUrl,
    Host,
    Judge,
    Method,
    Model,
    Parent,
    Port,
    Set,
    Upstream,
    as_arguments,
    as_settings,
    as_typed,
)
from openclaw_rl.cli.terminal import log_to_terminal, need_local, say
from openclaw_rl.processes.parent import end_with


def up(
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
    model: Model = None,
    method: Method = None,
    judge: Judge = None,
    upstream: Upstream = None,
    engine: Engine = None,
    engine_url: EngineUrl = None,
    host: Host = None,
    port: Port = None,
    set_: Set = None,
) -> None:
    """Serve and learn on this machine, until Ctrl-C; with --upstream, record and judge what it answers."""
    flags = as_settings(
        set_,
        data_dir=data_dir,
        model=model,
        method=method,
        judge=judge,
        upstream=upstream,
        engine=engine,
        engine_url=engine_url,
        host=host,
        port=port,
    )
    settings, _ = config.load(config_file, flags)
    if not settings.upstream.url:
        need_local("up")
    log_to_terminal()
    from openclaw_rl.gateway.auth import check_bind
    from openclaw_rl.gateway.upstream.connection import base_url
    from openclaw_rl.processes.judge import refuse_self
    from openclaw_rl.processes.listener import check_free
    from openclaw_rl.processes.single import only_one
    from openclaw_rl.processes.up import REFUSED, ChildRefusedError, Supervisor

    check_bind(settings)
    refuse_self(settings)
    with only_one(settings.home, "supervisor"):
        check_free(settings)
        where, follows = f"at http://{settings.server.host}:{settings.server.port}/v1", ""
        if not settings.server.port:
            where, follows = "on a free port", "; the server's line below names it as soon as it serves"
        if settings.upstream.url:
            passed_on = f"are passed on to {base_url(settings)} and recorded"
            say(f"starting; requests {where} {passed_on}; nothing trains{follows}")
        else:
            from openclaw_rl.policy.embedded import model_files
            from openclaw_rl.processes import engines

            engines.check(settings)
            model_files.resolve(settings.model.name, say)
            key = "" if settings.server.api_keys else " (any API key)"
            say(f"starting; once it serves, {settings.served_name} answers {where}{key}{follows}")
        again = as_typed("up", config_file, {**flags, "data_dir": str(settings.home)})
        say(f"Ctrl-C stops; `{again}` goes on where it stopped")
        try:
            Supervisor(as_arguments(config_file, flags), say).run()
        except ChildRefusedError as error:
            say(f"openclaw-rl: {error}")
            raise typer.Exit(REFUSED) from None


def serve(
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
    model: Model = None,
    judge: Judge = None,
    upstream: Upstream = None,
    engine: Engine = None,
    engine_url: EngineUrl = None,
    host: Host = None,
    port: Port = None,
    set_: Set = None,
    parent: Parent = None,
) -> None:
    """Run the server alone."""
    flags = as_settings(
        set_,
        data_dir=data_dir,
        model=model,
        judge=judge,
        upstream=upstream,
        engine=engine,
        engine_url=engine_url,
        host=host,
        port=port,
    )
    settings, _ = config.load(config_file, flags)
    if settings.upstream.url:
        from openclaw_rl.processes.record import record as run
    else:
        need_local("serve")
        from openclaw_rl.processes.serve import serve as run
    log_to_terminal()
    if parent is not None:
        end_with(parent)
    run(settings)


def learn(
    config_file: ConfigFile = None,
    data_dir: DataDir = None,
    model: Model = None,
    method: Method = None,
    judge: Judge = None,
    upstream: Upstream = None,
    set_: Set = None,
    parent: Parent = None,
) -> None:
    """Run the judge and the trainer alone; the judge only, where nothing trains."""
    flags = as_settings(set_, data_dir=data_dir, model=model, method=method, judge=judge, upstream=upstream)
    settings, _ = config.load(config_file, flags)
    if settings.upstream.url or not settings.learn.enabled:
        from openclaw_rl.processes.judge import judge as run
    else:
        need_local("learn")
        process_environment.enter(background=True)
        from openclaw_rl.processes.learn import learn as run
    log_to_terminal()
    if parent is not None:
        end_with(parent)
    run(settings)


def fetch(model: Model = None, config_file: ConfigFile = None) -> None:
    """Fetch the model's files now instead of at the first start; prints their folder."""
    settings, _ = config.load(config_file, as_settings(model=model))
    need_local("fetch")
    from openclaw_rl.policy.embedded import model_files

    typer.echo(str(model_files.resolve(settings.model.name, say)))
