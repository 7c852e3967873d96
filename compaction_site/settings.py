"""Settings. Every variable is read here once, strictly (environment.py); code reads django.conf.settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.templatetags.static import static
from django.urls import reverse_lazy

from compaction_site import environment as env
from sessions_app.policy import FIGURES, Policy

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(env.text(name="DATA_DIR", default=str(BASE_DIR / "var")))
env.make_folder(name="DATA_DIR", folder=DATA_DIR)

DEBUG = env.switch(name="DEBUG", default=False)
SECRET_KEY = env.secret(name="SECRET_KEY", file=DATA_DIR / "secret-key")
ALLOWED_HOSTS = env.listing(name="ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.listing(name="CSRF_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "drf_standardized_errors",
    "sessions_app",
    "compaction_app",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "compaction_site.urls"
ASGI_APPLICATION = "compaction_site.asgi.application"
WSGI_APPLICATION = "compaction_site.wsgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": env.database(name="DATABASE_URL", default_file=DATA_DIR / "compaction.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = env.url(name="REDIS_URL", schemes=("redis", "rediss"))
CACHES: dict[str, dict[str, Any]] = {
    "default": (
        {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": REDIS_URL,
            # Appends read the windows of models here: a Redis that is silent must not hold them up.
            "OPTIONS": {"socket_connect_timeout": 1, "socket_timeout": 1},
        }
        if REDIS_URL
        else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    )
}

PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [{"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"}]
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"  # without it, a login page opened directly ends in a 404

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "static"
STATIC_ROOT.mkdir(exist_ok=True)
WHITENOISE_USE_FINDERS = True  # static files straight from the packages: no collectstatic before the first start
WHITENOISE_AUTOREFRESH = DEBUG

# Celery. Without REDIS_URL the broker lives in the memory of the serving process and its embedded worker; the run's
# row is the truth either way (compaction_app/services/runs.py), so a lost message only waits for the next sweep.
CELERY_BROKER_URL = REDIS_URL or "memory://localhost/"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {} if REDIS_URL else {"polling_interval": 0.1}
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CONCURRENCY = 2
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_TASK_SOFT_TIME_LIMIT = 1_800  # below Redis' visibility timeout of an hour
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE = {
    "recover-runs": {"task": "compaction_app.tasks.recover_runs", "schedule": Policy().sweep_seconds},
    # Mostly finds that nothing is due; without a worker these must not pile up.
    "refresh-catalog": {
        "task": "compaction_app.tasks.refresh_catalog",
        "schedule": Policy().sweep_seconds,
        "options": {"expires": Policy().sweep_seconds},
    },
}

# Compaction: the layer "environment" of sessions_app/policy.py, and switches that are no figures.
COMPACTION_POLICY: dict[str, Any] = env.figures(table={name: row.metadata for name, row in FIGURES.items()})
# The provider. Its SDK reads key and address from the environment itself; here is only whether there is a key at all.
ANTHROPIC_KEY_SET = any(env.text(name=name) for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"))
ANTHROPIC_BASE_URL = env.url(name="ANTHROPIC_BASE_URL", schemes=("http", "https"))
COMPACTION_SUMMARIZER = env.choice(
    name="COMPACTION_SUMMARIZER", default="auto", allowed=("auto", "anthropic", "anthropic_native", "extractive")
)
# The model that writes summaries; "": each session's own.
COMPACTION_MODEL = env.text(name="COMPACTION_MODEL").strip()
# Hooks may be sent to this machine and to private networks: for development, and for hooks of one's own network.
HOOKS_ALLOW_PRIVATE_ADDRESSES = env.switch(name="HOOKS_ALLOW_PRIVATE_ADDRESSES", default=False)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "compaction_app.api.auth.ApiKeyAuthentication",
        "compaction_app.api.auth.BrowserAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["compaction_app.api.auth.HasScope"],
    "DEFAULT_THROTTLE_CLASSES": ["compaction_app.api.throttling.PerCaller"],
    "DEFAULT_RENDERER_CLASSES": ["compaction_app.api.codec.JsonRenderer"],
    "DEFAULT_PARSER_CLASSES": ["compaction_app.api.codec.JsonParser"],
    "DEFAULT_SCHEMA_CLASS": "compaction_app.api.schema.ApiSchema",
    "EXCEPTION_HANDLER": "compaction_app.api.errors.exception_handler",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DATETIME_FORMAT": "iso-8601",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,  # ?format= names a transcript format, never a renderer
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Conversation compaction service",
    "DESCRIPTION": "Keeps every message of every session, and gives back a context that fits.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "compaction_app.api.limits.tell_limits",
        "compaction_app.api.limits.tell_list_bounds",
    ],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "MessageRole": "sessions_app.models.messages.ROLE_CHOICES",
        "BoundaryKind": "sessions_app.models.boundaries.KIND_CHOICES",
        "RunStatus": "compaction_app.models.runs.RunStatus",
        "FailureReason": "compaction_app.api.runs.REASONS",
        "RunSource": "compaction_app.models.runs.CompactionRun.Source",
        "DeliveryStatus": ["waiting", "delivered", "given_up"],
        "ContextSource": ["usage", "usage+estimate", "estimate"],
    },
}
# Transcripts that wait for the worker; never served. Uploads arrive there too, so that they are moved and not copied.
MEDIA_ROOT = DATA_DIR / "uploads"
FILE_UPLOAD_TEMP_DIR = str(MEDIA_ROOT)
FILE_UPLOAD_PERMISSIONS = 0o600
MEDIA_ROOT.mkdir(mode=0o700, exist_ok=True)
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * 1024 * 1024  # bytes; a turn may carry images, the Messages API itself takes 32 MB

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Compaction",
    "SITE_HEADER": "Compaction",
    "SITE_SUBHEADER": "Conversations that never run out",
    "SITE_SYMBOL": "compress",
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("compaction_app/icon.svg")}
    ],
    "SHOW_HISTORY": False,
    "STYLES": [lambda request: static("compaction_app/admin.css")],
    "SIDEBAR": {
        "show_search": True,
        "navigation": [
            {
                "title": "Transcripts",
                "items": [
                    {
                        "title": "Sessions",
                        "icon": "forum",
                        "link": reverse_lazy("admin:sessions_app_session_changelist"),
                    },
                    {
                        "title": "Boundaries",
                        "icon": "horizontal_rule",
                        "link": reverse_lazy("admin:sessions_app_compactboundary_changelist"),
                    },
                    {
                        "title": "Imports",
                        "icon": "upload_file",
                        "link": reverse_lazy("admin:compaction_app_transcriptimport_changelist"),
                    },
                ],
            },
            {
                "title": "Compaction",
                "items": [
                    {
                        "title": "Runs",
                        "icon": "compress",
                        "link": reverse_lazy("admin:compaction_app_compactionrun_changelist"),
                    },
                    {
                        "title": "Failed compactions",
                        "icon": "report",
                        "link": reverse_lazy("admin:compaction_app_failuregroup_changelist"),
                    },
                    {
                        "title": "Decisions",
                        "icon": "rule",
                        "link": reverse_lazy("admin:compaction_app_decision_changelist"),
                    },
                    {
                        "title": "Telemetry",
                        "icon": "monitoring",
                        "link": reverse_lazy("admin:compaction_app_telemetryevent_changelist"),
                    },
                    {
                        "title": "Hooks",
                        "icon": "webhook",
                        "link": reverse_lazy("admin:compaction_app_hook_changelist"),
                    },
                    {
                        "title": "Hook deliveries",
                        "icon": "outbox",
                        "link": reverse_lazy("admin:compaction_app_hookdelivery_changelist"),
                    },
                ],
            },
            {
                "title": "Access",
                "items": [
                    {"title": "Teams", "icon": "groups", "link": reverse_lazy("admin:sessions_app_team_changelist")},
                    {
                        "title": "Erasures",
                        "icon": "delete_forever",
                        "link": reverse_lazy("admin:sessions_app_erasure_changelist"),
                    },
                    {"title": "API keys", "icon": "key", "link": reverse_lazy("admin:sessions_app_apikey_changelist")},
                    {
                        "title": "Users",
                        "icon": "person",
                        "link": reverse_lazy("admin:auth_user_changelist"),
                        "permission": lambda request: request.user.has_perm("auth.view_user"),
                    },
                ],
            },
        ],
    },
}

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        # A client's mistake (4xx) is told to the client; the terminal hears of our own.
        "django.request": {"level": "ERROR"},
        **{name: {"level": "INFO"} for name in ("compaction_app", "sessions_app", "compaction_site")},
    },
}
