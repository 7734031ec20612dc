// Before anything is painted, so that a page that was set to dark does not flash.
try {
  const theme = localStorage.getItem('postrider-theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // Storage is forbidden: the system's theme it is.
}
