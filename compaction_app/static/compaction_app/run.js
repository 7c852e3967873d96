// A run that is not finished: fetch the page again every two seconds and put its live part in place of the old one.
(() => {
  const EVERY = 2000;

  const refresh = async () => {
    const live = document.getElementById("run-live");
    if (!live || live.dataset.active !== "yes") return;
    try {
      const answer = await fetch(window.location.href, { headers: { "X-Requested-With": "fetch" } });
      if (answer.ok && !answer.redirected) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById("run-live");
        if (fresh) live.replaceWith(document.adoptNode(fresh));
      }
    } catch {
      // The server may be restarting: the next round tries again.
    }
    setTimeout(refresh, EVERY);
  };

  setTimeout(refresh, EVERY);
})();
