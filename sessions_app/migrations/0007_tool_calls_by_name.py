from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0006_summary_call'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='toolcall',
            index=models.Index(fields=['session', 'name', 'use_position'], name='tool_call_by_name'),
        ),
    ]
