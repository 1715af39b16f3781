// A terminal inside a job (GET /v1/jobs/{job}/exec as a WebSocket), drawn by xterm, which is loaded when it is opened. After a
// lost connection it goes on with the same shell, by its key and the position it has.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Terminal as Xterm } from '@xterm/xterm';
import { address, socket } from '../api/client';
import { t } from '../lib/i18n';
import { dark, token } from '../lib/theme';

const HEAD_OUT = 17, HEAD_IN = 9;
const OUTPUT = 5, ERROR = 6, INPUT = 7;
const RETRY_MS = 1000;

// xterm writes its rules into <style> elements, which the policy of the portal forbids; a constructed sheet takes them.
function allowStyles(): void {
  const create = document.createElement.bind(document) as (name: string, options?: ElementCreationOptions) => HTMLElement;
  if (Object.hasOwn(document, 'createElement')) return;
  document.createElement = ((name: string, options?: ElementCreationOptions) => {
    if (name.toLowerCase() !== 'style') return create(name, options);
    const stand = create('span');
    const sheet = new CSSStyleSheet();
    stand.hidden = true;
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    Object.defineProperty(stand, 'textContent', { set: (rules: string) => void sheet.replaceSync(rules), get: () => '' });
    Object.defineProperty(stand, 'remove', {
      value: () => {
        document.adoptedStyleSheets = document.adoptedStyleSheets.filter(s => s !== sheet);
        Element.prototype.remove.call(stand);
      },
    });
    return stand;
  }) as typeof document.createElement;
}

function colours() {
  return { background: token('background'), foreground: token('ink'), cursor: token('accent'), selectionBackground: token('soft') };
}

// The conversation: what was typed is kept until the controller has taken it.
class Session {
  private ws: WebSocket | null = null;
  private readonly key = `portal-${Math.random().toString(36).slice(2)}${Date.now().toString(36)}`;
  private at = 0;
  private sent = 0;        // position behind the input sent
  private kept: Array<{ at: number; data: Uint8Array }> = [];
  private over = false;
  private started = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly job: string, private readonly node: number, private readonly folder: string | undefined, private readonly term: Xterm, private readonly ended: (text: string) => void) {
    this.open(false);
  }

  stop(): void {
    this.over = true;
    clearTimeout(this.timer);
    if (this.ws?.readyState === WebSocket.OPEN) this.ws.send(JSON.stringify({ cancel: true }));
    this.ws?.close();
  }

  type(text: string): void {
    const data = new TextEncoder().encode(text);
    const piece = { at: this.sent, data };
    this.kept.push(piece);
    this.sent += data.length;
    this.push(piece);
  }

  resize(rows: number, columns: number): void {
    if (this.ws?.readyState === WebSocket.OPEN && this.started) this.ws.send(JSON.stringify({ resize: [rows, columns] }));
  }

  private push(piece: { at: number; data: Uint8Array }): void {
    if (this.ws?.readyState !== WebSocket.OPEN || !this.started) return;
    const message = new Uint8Array(HEAD_IN + piece.data.length);
    message[0] = INPUT;
    new DataView(message.buffer).setBigUint64(1, BigInt(piece.at), true);
    message.set(piece.data, HEAD_IN);
    this.ws.send(message);
  }

  private open(resume: boolean): void {
    this.started = false;
    const ws = socket(address('/v1/jobs/{job}/exec', { job: this.job }));
    this.ws = ws;
    ws.onopen = () => ws.send(JSON.stringify({
      argv: [], pty: true, rows: this.term.rows, columns: this.term.cols, node: this.node, environment: ['TERM=xterm-256color'], key: this.key,
      ...(this.folder ? { workdir: this.folder } : {}),
      ...(resume ? { resume: true, from: [this.at] } : {}),
    }));
    ws.onmessage = m => (typeof m.data === 'string' ? this.text(m.data) : this.bytes(m.data as ArrayBuffer));
    ws.onclose = () => {
      if (!this.over) this.timer = setTimeout(() => this.open(true), RETRY_MS);
    };
  }

  private bytes(data: ArrayBuffer): void {
    const view = new DataView(data);
    const kind = view.getUint8(0);
    if (kind !== OUTPUT && kind !== ERROR) return;
    this.at = Number(view.getBigUint64(9, true));
    this.term.write(new Uint8Array(data, HEAD_OUT));
    this.ws?.send(JSON.stringify({ ack: [this.at] }));
  }

  private text(data: string): void {
    const m = JSON.parse(data) as Record<string, unknown>;
    if (m['error']) this.end((m['error'] as { message: string }).message);
    else if ('exit_code' in m && 'nodes' in m) {
      this.ws?.send(JSON.stringify({ received: true }));
      this.end(t('terminal.ended'));
    } else if ('step' in m) this.begin();
    else if ('input_from' in m) {
      this.begin();
      this.kept = this.kept.filter(k => k.at + k.data.length > Number(m['input_from']));
      for (const k of this.kept) this.push(k);
    } else if ('input_at' in m) this.kept = this.kept.filter(k => k.at + k.data.length > Number(m['input_at']));
  }

  private begin(): void {
    const first = !this.started;
    this.started = true;
    if (first) for (const k of this.kept) this.push(k);
  }

  private end(text: string): void {
    this.over = true;
    this.ws?.close();
    this.ended(text);
  }
}

// To the button that closes the dialog, which Escape does as well from there.
function leave(box: HTMLElement): void {
  const close = box.closest('dialog')?.querySelector<HTMLElement>('.dialog-head button');
  if (close) close.focus();
  else (document.activeElement as HTMLElement | null)?.blur();
}

export default function TerminalView({ job, node, folder }: { job: string; node: number; folder?: string | undefined }) {
  const box = useRef<HTMLDivElement>(null);
  const term = useRef<Xterm | null>(null);
  const [status, setStatus] = useState('');
  useEffect(() => {
    let stop: (() => void) | null = null, gone = false;
    allowStyles();
    void Promise.all([import('@xterm/xterm'), import('@xterm/addon-fit')]).then(([x, fit]) => {
      if (gone) return;
      const terminal = new x.Terminal({ fontSize: 13, fontFamily: token('mono'), theme: colours(), screenReaderMode: true, cursorBlink: true, scrollback: 5000 });
      const size = new fit.FitAddon();
      terminal.loadAddon(size);
      terminal.open(box.current!);
      size.fit();
      term.current = terminal;
      const session = new Session(job, node, folder, terminal, text => {
        setStatus(text);
        leave(box.current!);
      });
      // Tab and Escape belong to the programs inside: without a key of its own nobody would get out by keyboard.
      terminal.attachCustomKeyEventHandler(e => {
        if (e.type !== 'keydown' || e.key !== 'F6' || !e.ctrlKey) return true;
        leave(box.current!);
        return false;
      });
      terminal.onData(d => session.type(d));
      terminal.onResize(r => session.resize(r.rows, r.cols));
      const watch = new ResizeObserver(() => size.fit());
      watch.observe(box.current!);
      terminal.focus();
      stop = () => {
        watch.disconnect();
        session.stop();
        terminal.dispose();
      };
    });
    return () => {
      gone = true;
      stop?.();
    };
  }, [job, node]);
  useEffect(() => {
    if (term.current) term.current.options.theme = colours();
  }, [dark.value]);
  return (
    <>
      <div class="terminal-box" ref={box} />
      <div class="muted small" role="status">{status || t('terminal.leave')}</div>
    </>
  );
}
