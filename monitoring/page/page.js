// Asks for the same page again and again, and shows what is new of it.
"use strict";

const kEveryMilliseconds = 2000;

function words(text) {
  document.getElementById("state").textContent = text;
}

// Notes how wide the window is, and by how much the page is wider: 0 if all of it can be seen without
// scrolling sideways.
function overflow() {
  const root = document.documentElement;
  root.dataset.width = String(root.clientWidth);
  root.dataset.overflow = String(Math.max(0, root.scrollWidth - root.clientWidth));
}

async function refresh() {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.pathname, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.getElementById("live").replaceWith(page.getElementById("live"));
    document.body.classList.remove("late");
    words("Live: as of " + new Date().toLocaleTimeString() + ".");
    overflow();
  } catch (failure) {
    document.body.classList.add("late");
    words("No answer. The run has ended, or its host cannot be reached; this is its last state.");
  }
}

overflow();
setInterval(refresh, kEveryMilliseconds);
document.addEventListener("visibilitychange", refresh);
