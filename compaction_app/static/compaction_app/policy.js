// The form of figures. A browser sends an unfinished number ("1e") as nothing, which would take the override back.
(() => {
  const figures = document.querySelector(".ca-figures");
  const form = figures && figures.closest("form");
  if (!form) return;

  const open = (input) => {
    const fold = input.closest("details");
    if (fold) fold.open = true;
  };

  form.addEventListener("submit", (event) => {
    const unfinished = Array.from(figures.querySelectorAll("input")).find((input) => input.validity.badInput);
    if (!unfinished) return;
    event.preventDefault();
    open(unfinished);
    unfinished.reportValidity();
  });

  const problems = figures.querySelector("[data-problems]");
  if (problems) window.addEventListener("load", () => problems.focus());
})();
