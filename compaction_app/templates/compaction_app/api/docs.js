{% comment %}
The library's script, with a token for each call to this service while somebody is logged in, and no cookie at all while
nobody is.
{% endcomment %}
function asWhoIsLoggedIn(request) {
  if (request.loadSpec || new URL(request.url, document.baseURI).origin !== document.location.origin) {
    return request;
  }
  {% if username %}
  request.headers["{{ csrf_header_name }}"] = "{{ csrf_token }}";
  {% else %}
  request.credentials = "omit";
  {% endif %}
  return request;
}
{% include "drf_spectacular/swagger_ui.js" with csrf_token="" %}

// Swagger UI has colours for the dark, and leaves it to the page to ask for them.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const colour = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", colour);
colour();
