// The draft in the composer: what is typed is kept with the controller a little after the last key, under a name that the address gets with the
// first change. Somebody who may not submit keeps nothing.
import { useEffect, useRef, useState } from 'preact/hooks';
import { errorText } from '../api/client';
import { dropDraft, keepDraft, newName } from '../api/saved';
import { me } from '../api/session';
import type { Spec } from '../api/types';
import { t } from '../lib/i18n';
import { go } from '../lib/router';

const KEEP_WAIT_MS = 800;

export interface Kept {
  /** Its name; null: there is none yet. */
  name: string | null;
  state: 'new' | 'saving' | 'kept' | 'failed';
  error: string;
  /** Deletes it: it was submitted, or is not wanted any more. */
  drop: () => Promise<void>;
}

/** `loaded`: the script as it was opened, which needs not be kept again. */
export function useDraft(opened: string | null, loaded: string, script: string, spec: Partial<Spec>, onName: (name: string) => void): Kept {
  const name = useRef(opened);
  const done = useRef(loaded);
  const pending = useRef<(() => Promise<void>) | null>(null);
  const [state, setState] = useState<Kept['state']>(opened ? 'kept' : 'new');
  const [error, setError] = useState('');
  useEffect(() => {
    if (script === done.current || !me.value?.may_submit) return undefined;
    setState('saving');
    pending.current = async () => {
      pending.current = null;
      const to = (name.current ??= newName());
      onName(to);
      try {
        await keepDraft(to, { title: spec.name ?? t('new.untitled'), spec, script });
        done.current = script;
        setState('kept');
      } catch (e) {
        setError(errorText(e));
        setState('failed');
      }
    };
    const timer = setTimeout(() => {
      void pending.current?.().then(() => {
        const address = `/new?draft=${encodeURIComponent(name.current!)}`;
        if (window.location.pathname === '/new' && window.location.pathname + window.location.search !== address) go(address, true);
      });
    }, KEEP_WAIT_MS);
    return () => clearTimeout(timer);
  }, [script]);
  useEffect(() => () => void pending.current?.(), []);  // leaving the page keeps what was typed last
  const drop = async () => {
    pending.current = null;
    done.current = script;
    const old = name.current;
    name.current = null;
    setState('new');
    if (old) await dropDraft(old);
  };
  return { name: name.current, state, error, drop };
}
