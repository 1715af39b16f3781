// Runs before the first paint, as a script of its own: sets the theme that was chosen, so that nothing flashes.
{
  const chosen = localStorage.getItem('acequia.theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset['theme'] = chosen;
}
