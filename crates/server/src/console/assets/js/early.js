// Before the first paint: the theme that was chosen, so that nothing flashes.
(() => {
  try {
    const theme = localStorage.getItem("duly.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be forbidden: then the system's theme it is.
  }
})();
