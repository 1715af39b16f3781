// Jobs of others whose name and user are not shown here (others_jobs = masked): a text stands for them.
import { t } from './i18n';

interface Named {
  name: string | null;
  user: string | null;
}

export function named<T extends Named>(job: T): T & { name: string; user: string } {
  return { ...job, name: job.name ?? t('job.masked'), user: job.user ?? '–' };
}
