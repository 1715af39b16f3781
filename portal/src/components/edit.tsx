// A form in a dialog, with the same from a shell below it.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { ask } from './dialog';
import { SameFold, type Same } from './same';

/** A form in a dialog: its values are sent when the answer is yes. */
export function edit<T>(o: { title: string; yes: string; first: T; form: (v: T, set: (v: T) => void) => ComponentChildren; same: (v: T) => Same; act: (v: T) => Promise<void> }): void {
  let values = o.first;
  ask({ title: o.title, yes: o.yes, body: <Edited first={o.first} form={o.form} same={o.same} kept={v => (values = v)} />, act: () => o.act(values) });
}

function Edited<T>({ first, form, same, kept }: { first: T; form: (v: T, set: (v: T) => void) => ComponentChildren; same: (v: T) => Same; kept: (v: T) => void }) {
  const [value, setValue] = useState(first);
  const set = (v: T) => {
    setValue(v);
    kept(v);
  };
  return <>{form(value, set)}<SameFold actions={[same(value)]} /></>;
}
