// A text for editing: CodeMirror, loaded when it is opened. It makes <style> elements, which the policy of the portal forbids;
// inside a ShadowRoot it uses constructed style sheets instead.
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { HighlightStyle, StreamLanguage, bracketMatching, indentOnInput, syntaxHighlighting, type StreamParser } from '@codemirror/language';
import { EditorState } from '@codemirror/state';
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { useEffect, useRef } from 'preact/hooks';
import { extension } from './data';

const LANGUAGES: Record<string, () => Promise<StreamParser<unknown>>> = {
  py: async () => (await import('@codemirror/legacy-modes/mode/python')).python as StreamParser<unknown>,
  sh: async () => (await import('@codemirror/legacy-modes/mode/shell')).shell as StreamParser<unknown>,
  yaml: async () => (await import('@codemirror/legacy-modes/mode/yaml')).yaml as StreamParser<unknown>,
};
const SAME: Record<string, string> = { bash: 'sh', sbatch: 'sh', slurm: 'sh', yml: 'yaml' };

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: 'var(--accent)', fontWeight: '600' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--good)' },
  { tag: tags.comment, color: 'var(--muted)', fontStyle: 'italic' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--warning)' },
  { tag: [tags.definition(tags.variableName), tags.propertyName], color: 'var(--series-3)' },
]);

const look = EditorView.theme({
  '&': { fontSize: '12px', backgroundColor: 'var(--background)', color: 'var(--ink)', height: 'calc(100vh - 260px)', minHeight: '260px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '18px', overflow: 'auto' },
  '.cm-gutters': { backgroundColor: 'var(--panel)', color: 'var(--muted)', borderRight: '1px solid var(--line)' },
  '.cm-activeLine': { backgroundColor: 'var(--hover)' },
  '.cm-cursor': { borderLeftColor: 'var(--accent)' },
  '&.cm-focused': { outline: '2px solid var(--accent)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'var(--soft)' },
});

export default function Editor({ name, label, text, changed, save }: { name: string; label: string; text: string; changed: (text: string) => void; save: () => void }) {
  const host = useRef<HTMLDivElement>(null);
  const saveNow = useRef(save);
  saveNow.current = save;
  useEffect(() => {
    const h = host.current!;
    const root = h.shadowRoot ?? h.attachShadow({ mode: 'open' });
    let view: EditorView | null = null, gone = false;
    const start = async () => {
      const ending = extension(name);
      const language = await LANGUAGES[SAME[ending] ?? ending]?.().catch(() => undefined);
      if (gone) return;
      view = new EditorView({
        root,
        parent: root,
        state: EditorState.create({
          doc: text,
          extensions: [
            EditorState.lineSeparator.of('\n'),  // others stay characters: what is not changed is saved as it was
            lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), highlightActiveLine(), syntaxHighlighting(colours), look,
            EditorView.contentAttributes.of({ 'aria-label': label }),
            keymap.of([{ key: 'Mod-s', preventDefault: true, run: () => { saveNow.current(); return true; } }, ...defaultKeymap, ...historyKeymap, indentWithTab]),
            EditorView.updateListener.of(u => { if (u.docChanged) changed(u.state.doc.toString()); }),
            ...(language ? [StreamLanguage.define(language)] : []),
          ],
        }),
      });
      view.scrollDOM.tabIndex = 0;  // it scrolls, so the keyboard must reach it
      view.focus();
    };
    void start();
    return () => {
      gone = true;
      view?.destroy();
    };
  }, [name]);
  return <div class="editor-host" ref={host} />;
}
