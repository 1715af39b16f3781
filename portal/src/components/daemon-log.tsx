// The newest lines of a daemon's log, for administrators; loaded when it is opened, and then kept fresh.
import { useState } from 'preact/hooks';
import { send } from '../api/client';
import { useResource } from '../api/resource';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { Card } from './basics';
import { Loaded } from './states';

const EVERY_MS = 5000;

export function DaemonLog({ title, path }: { title: string; path: string }) {
  const [open, setOpen] = useState(false);
  return (
    <Card title={title} note={<button class="link-button" aria-expanded={open} onClick={() => setOpen(!open)}>{t(open ? 'node.hideLog' : 'node.showLog')}</button>}>
      {open ? <Lines path={path} title={title} /> : null}
    </Card>
  );
}

function Lines({ path, title }: { path: string; title: string }) {
  const [typed, setTyped] = useState('');
  const r = useResource(path, async s => ((await (await send('GET', path, undefined, s)).json()) as { log: string }).log.split('\n').filter(Boolean), { everyMs: EVERY_MS });
  return (
    <Loaded of={r.state.value} retry={r.refresh}>
      {all => {
        const lines = all.filter(l => l.toLowerCase().includes(typed.toLowerCase())).reverse();
        return (
          <>
            <div class="tools"><input class="input search" type="search" aria-label={t('log.search')} placeholder={t('log.search')} value={typed} onInput={e => setTyped(e.currentTarget.value)} />
              <span class="muted small">{t('log.lines', { n: lines.length })}</span></div>
            <div class="log daemon-log" tabIndex={0} role="log" aria-label={title}>
              {lines.map((l, i) => {
                const [, at, level, text] = /^(\S+Z) (\w+) (.*)$/.exec(l) ?? [l, '', '', l];
                return <div key={`${lines.length - i}`} class="log-line"><span class="at">{at ? f.fullMoment(Date.parse(at)) : ''}</span><span class={level === 'error' ? 'bad' : level === 'warn' ? 'warn' : 'muted'}>{level}</span> {text}</div>;
              })}
            </div>
          </>
        );
      }}
    </Loaded>
  );
}
