// Starts the portal: language, who is logged in, the live connection, the frame.
import { effect } from '@preact/signals';
import { render } from 'preact';
import { startLive, stopLive } from './api/live';
import { loadMe, loginNeeded, me, takeCode } from './api/session';
import { loadProjects } from './components/basics';
import { startCommandKeys } from './components/command';
import { startLanguage } from './lib/i18n';
import { startRouter } from './lib/router';
import { Login } from './pages/login';
import { startCommands } from './shell/commands';
import { Shell } from './shell/shell';
import './lib/phrases';
import './lib/theme';

async function start(): Promise<void> {
  await startLanguage();
  await takeCode();
  startRouter();
  startCommandKeys();
  startCommands();
  try {
    await loadMe();
  } catch {
    // Not logged in: the login page is shown. Not reached: the pages say so and try again.
  }
  effect(() => {
    if (!me.value || loginNeeded.value) return stopLive();
    startLive();
    void loadProjects().catch(() => undefined);  // their colours come with the live stream, too
    return undefined;
  });
  render(<Shell login={Login} />, document.getElementById('app')!);
}

void start();
