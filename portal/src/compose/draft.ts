// The draft in the composer: what is typed is kept with the controller a little after the last key, under a name that the address gets with the
// first change. It is kept only over the version that was read: what another window or the command line has kept meanwhile is not lost, and the
// person chooses. Somebody who may not submit keeps nothing.
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, errorText } from '../api/client';
import { dropDraft, keepDraft, newName } from '../api/saved';
import { me } from '../api/session';
import type { Spec } from '../api/types';
import { t } from '../lib/i18n';
import { go } from '../lib/router';

const KEEP_WAIT_MS = 800;

export interface Kept {
  /** Its name; null: there is none yet. */
  name: string | null;
  /** stale: somewhere else another version was kept, or it was deleted; nothing is kept until the person chooses. */
  state: 'new' | 'saving' | 'kept' | 'failed' | 'stale';
  error: string;
  /** Deletes it: it was submitted, or is not wanted any more. */
  drop: () => Promise<void>;
  /** Keeps what is here in place of the other version. */
  replace: () => void;
  /** Keeps what is here as another draft; the other version stays. */
  keepBoth: () => void;
}

export interface OpenedDraft {
  name: string;
  version: string;
}

/** `loaded`: the script as it was opened, which needs not be kept again. */
export function useDraft(opened: OpenedDraft | null, loaded: string, script: string, spec: Partial<Spec>, onName: (name: string) => void): Kept {
  const name = useRef(opened?.name ?? null);
  const version = useRef<string | null>(opened?.version ?? null);  // null: whatever is there
  const done = useRef(loaded);
  const stale = useRef(false);
  const pending = useRef<(() => Promise<void>) | null>(null);
  const [state, setState] = useState<Kept['state']>(opened ? 'kept' : 'new');
  const [error, setError] = useState('');

  const keep = async () => {
    pending.current = null;
    const to = (name.current ??= newName());
    onName(to);
    try {
      version.current = await keepDraft(to, { title: spec.name ?? t('new.untitled'), spec, script }, version.current);
      done.current = script;
      setState('kept');
    } catch (e) {
      stale.current = e instanceof ApiError && e.status === 412;
      setError(errorText(e));
      setState(stale.current ? 'stale' : 'failed');
    }
  };
  const showName = () => {
    const address = `/new?draft=${encodeURIComponent(name.current!)}`;
    if (window.location.pathname === '/new' && window.location.pathname + window.location.search !== address) go(address, true);
  };
  useEffect(() => {
    if (script === done.current || stale.current || !me.value?.may_submit) return undefined;
    setState('saving');
    pending.current = keep;
    const timer = setTimeout(() => void pending.current?.().then(showName), KEEP_WAIT_MS);
    return () => clearTimeout(timer);
  }, [script]);
  useEffect(() => () => void pending.current?.(), []);  // leaving the page keeps what was typed last
  const choose = (as: string | null) => {
    stale.current = false;
    name.current = as;
    version.current = null;
    setState('saving');
    void keep().then(showName);
  };
  const drop = async () => {
    pending.current = null;
    done.current = script;
    const old = name.current;
    name.current = version.current = null;
    setState('new');
    if (old) await dropDraft(old);
  };
  return { name: name.current, state, error, drop, replace: () => choose(name.current), keepBoth: () => choose(null) };
}
