// Sets the colours before the page is drawn, so that they do not change afterwards. It is not a module, because modules run later.
{
  let theme = null;
  try {
    theme = localStorage.getItem("jq-theme");
  } catch {
    /* storage is off: the system decides */
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
