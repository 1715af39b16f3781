// The host of a program of a job sends browsers here that must log in first; then they go back by way of the controller, which decides.
import { useEffect } from 'preact/hooks';
import { Card } from '../components/basics';
import { t } from '../lib/i18n';
import { location as address } from '../lib/router';
import { PageTop } from '../shell/shell';

export default function OpenPage() {
  useEffect(() => {
    const query = new URLSearchParams();
    for (const name of ['app', 'to', 'state']) {
      const value = address.value.query.get(name);
      if (value) query.set(name, value);
    }
    window.location.replace(`/v1/apps/authorize?${query.toString()}`);
  }, []);
  return (
    <>
      <PageTop title={t('nav.open')} />
      <Card><p role="status">{t('open.going')}</p></Card>
    </>
  );
}
