// "Copy" beside a text that is shown once. Without a secure context the browser offers no clipboard: then the
// text is selected, and Ctrl+C does it.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const field = document.getElementById(button.dataset.copy);
  field.focus();
  field.select();
  if (!navigator.clipboard) return;
  await navigator.clipboard.writeText(field.value);
  button.textContent = "Copied";
});
