// What a card or page shows while there is nothing to show: loading, empty, failed; and stale around old figures.
import type { ComponentChildren } from 'preact';
import type { State } from '../api/resource';
import { t } from '../lib/i18n';
import { Channel } from './icons';

export function Loading({ lines = 4 }: { lines?: number }) {
  const widths = ['92%', '74%', '86%', '60%', '80%', '68%'];
  return (
    <div class="loading" role="status" aria-label={t('state.loading')}>
      {Array.from({ length: lines }, (_, i) => <div class="bone" style={{ width: widths[i % widths.length] }} />)}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <Channel />
      <strong>{title}</strong>
      {children && <div>{children}</div>}
    </div>
  );
}

export function Failed({ text, retry }: { text: string; retry?: (() => void) | undefined }) {
  return (
    <div class="empty" role="alert">
      <strong class="bad">{t('state.failed')}</strong>
      <div>{text}</div>
      {retry && <button class="button" onClick={retry}>{t('state.retry')}</button>}
    </div>
  );
}

/** The data of a resource when it is there, else the state it is in. Old data stays, dimmed and announced. */
export function Loaded<T>({ of, retry, lines, children }: {
  of: State<T>;
  retry?: () => void;
  lines?: number;
  children: (data: T) => ComponentChildren;
}) {
  if (of.data === null) return of.error ? <Failed text={of.error} retry={retry} /> : <Loading lines={lines ?? 4} />;
  return <div class={of.error ? 'stale' : undefined} title={of.error ?? undefined}>{children(of.data)}</div>;
}
