// Copyright 2026 The OpenClaw-RL authors. SPDX-License-Identifier: Apache-2.0
/**
 * Says in two request headers what an OpenClaw-RL server otherwise reads off the texts: whether a person is
 * answered (X-Turn-Type: main) or OpenClaw works for itself (side), and which session it is (X-Session-Id).
 *
 * Touches requests of the provider `openclaw-rl` alone, edits no configuration, and reads no conversation.
 */
import { definePluginEntry, type ProviderWrapStreamFnContext } from "openclaw/plugin-sdk/plugin-entry";

const ID = "openclaw-rl";
const MOST_RUNS = 1000;

type Kind = "main" | "side";

/** The parts of a hook's context that tell why a run was started. */
type Origin = { trigger?: string; sessionKey?: string; inputProvenance?: { kind: string } };

/** Sessions that OpenClaw opens for work of its own, by a part of their key. */
const OWN_SESSION = /:(?:subagent|cron|hook|acp|internal-session-effects)(?::|$)/;

/** A model call's id is that of its run and a count; a run's id may hold colons itself. */
const CALL_COUNT = /:model:\d+$/;

function kindOf(origin: Origin): Kind {
  const input = origin.inputProvenance?.kind ?? "external_user";
  const person = origin.trigger === "user" && input === "external_user";
  return person && !OWN_SESSION.test(origin.sessionKey ?? "") ? "main" : "side";
}

/** The kinds of the latest runs, the oldest forgotten first. */
class Runs {
  private readonly kinds = new Map<string, Kind>();

  note(run: string, kind: Kind): void {
    this.kinds.delete(run);
    this.kinds.set(run, kind);
    const [oldest] = this.kinds.keys();
    if (this.kinds.size > MOST_RUNS && oldest !== undefined) this.kinds.delete(oldest);
  }

  /**
   * Of a call whose run never came by (a title, a summary): side. Before any run came by, nothing is said,
   * since OpenClaw may keep the hook from us; the server then looks for itself.
   */
  kindOf(call: string | undefined): Kind | undefined {
    if (this.kinds.size === 0) return undefined;
    return this.kinds.get(call?.replace(CALL_COUNT, "") ?? "") ?? "side";
  }
}

export default definePluginEntry({
  id: ID,
  name: "OpenClaw-RL",
  description: "Sends the session and the kind of each turn to an OpenClaw-RL server.",
  register(api) {
    const runs = new Runs();

    api.on("before_prompt_build", (_event, context) => {
      if (context.runId) runs.note(context.runId, kindOf(context));
    });

    const withHeaders = ({ streamFn, model: configured }: ProviderWrapStreamFnContext) => {
      if (!streamFn) return undefined;
      const call: typeof streamFn = (model, context, options) => {
        const headers: Record<string, string> = {};
        const kind = runs.kindOf(options?.requestId);
        if (kind) headers["X-Turn-Type"] = kind;
        // OpenClaw's own session headers, where they are switched on, also tell a reset from what was before.
        const { compat } = configured ?? model;
        const named = compat && "sendSessionAffinityHeaders" in compat && compat.sendSessionAffinityHeaders;
        if (options?.sessionId && !named) headers["X-Session-Id"] = options.sessionId;
        return streamFn(model, context, { ...options, headers: { ...options?.headers, ...headers } });
      };
      return call;
    };

    api.registerProvider({
      id: ID,
      label: "OpenClaw-RL",
      auth: [],
      wrapStreamFn: withHeaders,
      wrapSimpleCompletionStreamFn: withHeaders,
    });
  },
});
