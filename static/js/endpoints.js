// Keys of the pages that show endpoints and models: their buttons.

import { onKey } from "./keys.js";

for (const [key, selector] of [["n", "[data-new]"], ["e", "[data-edit]"], ["p", "[data-preflight]"]]) {
  onKey(key, () => {
    const target = document.querySelector(selector);
    if (!target) return false;
    target.click();
    return true;
  });
}
