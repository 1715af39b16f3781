// A component whose module is loaded when it is first shown.
import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Failed, Loading } from '../components/states';
import { t } from './i18n';

export function lazy<P extends object>(load: () => Promise<{ default: ComponentType<P> }>): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return function Lazy(props: P) {
    const [, drawn] = useState(0);
    const [failed, setFailed] = useState(false);
    const start = () => {
      setFailed(false);
      load().then(m => { loaded = m.default; drawn(n => n + 1); }, () => setFailed(true));
    };
    useEffect(() => {
      if (!loaded) start();
    }, []);
    if (failed) return <Failed text={t('state.notLoaded')} retry={start} />;
    const Loaded = loaded;
    return Loaded ? <Loaded {...props} /> : <Loading />;
  };
}
