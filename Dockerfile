# The service's image: web, worker and beat differ only in their command (docker-compose.yml).
FROM python:3.12-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 DATA_DIR=/data
WORKDIR /app

COPY requirements.txt .
RUN pip install -r requirements.txt

COPY . .
RUN useradd --system --home /app compaction && mkdir /data && chown compaction /data
USER compaction
VOLUME /data

EXPOSE 8000
CMD ["python", "manage.py", "serve", "--host", "0.0.0.0"]
