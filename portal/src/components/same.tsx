// "The same from a shell": what a click does, as a command line, as curl and as Python, ready to copy.
import { useState } from 'preact/hooks';
import { address } from '../api/client';
import { t } from '../lib/i18n';
import { stored } from '../lib/stored';
import { Card, Tabs } from './basics';
import { notify } from './toast';

export interface Same {
  /** The command line, quoted already (see quote); not given: there is no command for it; empty: the one before does it. */
  cli?: string;
  method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  query?: object;
  body?: unknown;
  /** A file of this name is sent as it is. */
  file?: string;
}

type Language = 'cli' | 'curl' | 'python';
const chosen = stored<Language>('shell', 'cli');

/** A word as a POSIX shell takes it. */
export function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

function curl(s: Same): string {
  const url = quote(location.origin + address(s.path, {}, s.query ?? {}));
  const method = s.method && s.method !== 'GET' && !(s.method === 'POST' && s.body !== undefined) ? ` -X ${s.method}` : '';
  const body = s.file ? ` \\\n  --data-binary @${s.file}` : s.body === undefined ? '' : ` \\\n  --json ${quote(JSON.stringify(s.body))}`;
  return `curl${method} -H "Authorization: Bearer $ACEQUIA_TOKEN" ${url}${body}`;
}

function pythonValue(v: unknown): string {
  if (v === null || v === undefined) return 'None';
  if (v === true) return 'True';
  if (v === false) return 'False';
  if (Array.isArray(v)) return `[${v.map(pythonValue).join(', ')}]`;
  if (typeof v === 'object') return `{${Object.entries(v).map(([k, x]) => `${JSON.stringify(k)}: ${pythonValue(x)}`).join(', ')}}`;
  return JSON.stringify(v);
}

function python(s: Same): string {
  const url = JSON.stringify(location.origin + address(s.path, {}, s.query ?? {}));
  const method = s.method ?? (s.body === undefined ? 'GET' : 'POST');
  const data = s.file ? `,\n    data=open(${JSON.stringify(s.file)}, "rb").read()` : s.body === undefined ? '' : `,\n    data=json.dumps(${pythonValue(s.body)}).encode()`;
  return 'import json, os, urllib.request\n' +
    `request = urllib.request.Request(${url}, method="${method}"${data},\n` +
    '    headers={"Authorization": "Bearer " + os.environ["ACEQUIA_TOKEN"], "Content-Type": "application/json"})\n' +
    'print(json.load(urllib.request.urlopen(request)))';
}

export function Copyable({ text }: { text: string }) {
  const copy = () => navigator.clipboard.writeText(text).then(() => notify(t('action.copied')), () => undefined);
  return (
    <div class="copy-row">
      <pre class="code wrap" tabIndex={0}>{text}</pre>
      <button class="button" type="button" onClick={() => void copy()}>{t('action.copy')}</button>
    </div>
  );
}

function useTexts(all: Same[]) {
  const [language, set] = useState<Language>(chosen.value);
  const choose = (l: Language) => {
    chosen.value = l;
    set(l);
  };
  const text = language === 'cli' ? all.map(s => s.cli ?? `# ${t('same.noCommand')}`).filter(Boolean).join('\n') : all.map(language === 'curl' ? curl : python).join('\n\n');
  const tabs = <Tabs label={t('same.title')} chosen={language} choose={choose}
    tabs={[{ key: 'cli', text: 'CLI' }, { key: 'curl', text: 'curl' }, { key: 'python', text: 'Python' }]} />;
  return { tabs, text };
}

/** As a card of a page. */
export function SameCard({ actions }: { actions: Same[] }) {
  const { tabs, text } = useTexts(actions);
  return <Card title={t('same.title')}>{tabs}<div class="stack"><span /><Copyable text={text} /></div></Card>;
}

/** Inside a dialog, folded. */
export function SameFold({ actions }: { actions: Same[] }) {
  const { tabs, text } = useTexts(actions);
  return (
    <details>
      <summary class="muted">{t('same.title')}</summary>
      {tabs}
      <div class="stack"><span /><Copyable text={text} /></div>
    </details>
  );
}
