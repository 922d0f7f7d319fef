// "Copy" beside a text. Without a secure context the browser offers no clipboard: then the text is selected, and
// Ctrl+C does it. `data-copy` names the field that holds it, `data-copy-text` is it.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-copy-text]");
  if (!button) return;
  const field = button.dataset.copy && document.getElementById(button.dataset.copy);
  if (field) {
    field.focus();
    field.select();
  } else if (!navigator.clipboard) {
    getSelection().selectAllChildren(button.previousElementSibling);
  }
  if (!navigator.clipboard) return;
  await navigator.clipboard.writeText(field ? field.value : button.dataset.copyText);
  button.textContent = "Copied";
});
