"""The learner process: judges turns as they are paired, and trains on them as batches fill.

The judge runs on an event loop in a thread of its own; the trainer has the main thread. Both meet the
server in the store alone, and run at a lower CPU priority than it does.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from openclaw_rl.config import Settings
from openclaw_rl.learn.loop import Learner
from openclaw_rl.learn.trainer import Trainer
from openclaw_rl.policy.embedded import model_files
from openclaw_rl.policy.embedded.cores import CoreShare
from openclaw_rl.policy.embedded.network import Network
from openclaw_rl.processes.judge import judge_until, stop_on_signals
from openclaw_rl.processes.same_model import refuse_other_model
from openclaw_rl.processes.single import only_one
from openclaw_rl.store import Store

log = logging.getLogger(__name__)


def learn(settings: Settings) -> None:
    """Judge and train until SIGINT or SIGTERM; an update that has begun is finished first."""
    stop = stop_on_signals()
    with only_one(settings.home, "learner"):
        store = Store.open(settings.database)
        refuse_other_model(store, settings)
        with closing(store), ThreadPoolExecutor(1, "judge") as pool:
            judging = pool.submit(judge_until, settings, store, stop)
            try:
                _make_learner(settings, store).run(stop)
            finally:
                stop.set()
            judging.result()  # what ended the judge ends this process, with its error


def _make_learner(settings: Settings, store: Store) -> Learner:
    store.report("learner", "loading the model")
    folder = model_files.resolve(settings.model.name, log.info)
    device = model_files.choose_device(settings.model.device)
    dtype = model_files.choose_dtype(settings.model.dtype, device)
    cores = CoreShare(settings.home, "learner", settings.learn.threads)
    full = settings.learn.full_fine_tuning

    def load(trainable: bool) -> Network:
        # Small steps are lost in bfloat16 weights, so what is trained is float32.
        precision = model_files.choose_dtype("float32", device) if trainable else dtype
        targets = () if full else settings.learn.lora_targets
        return Network.load(
            folder, dtype=precision, device=device, adapter_targets=targets, trainable=trainable
        )

    trainer = Trainer(
        load(full),
        model_files.load_template(folder),
        settings.learn,
        load(False) if full else None,
        cores.adjust,
    )
    return Learner(
        store,
        trainer,
        settings.learn,
        model=settings.served_name,
        model_folder=folder,
        versions=settings.home / "versions",
        cores=cores,
    )
