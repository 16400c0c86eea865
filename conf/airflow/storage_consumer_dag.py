"""A round every quarter of an hour, by Airflow 3: on the worker's own machine, and as a pod.

Copy this file into the folder of DAGs. The task on the machine needs the program in /opt/storage-consumer and its settings in
/etc/storage-consumer; the pod needs the ConfigMap and the Secret of conf/kubernetes. Use the one that fits, and remove the other.
"""

from __future__ import annotations

import datetime as dt

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from kubernetes.client import models as k8s

SETTINGS = (
    "--config=/etc/storage-consumer/changefeed.toml",
    "--config=/etc/storage-consumer/consumer.toml",
)
ONCE = ("run", "--once", *SETTINGS)
QUARTERLY = "*/15 * * * *"
COMMON = {
    "start_date": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "catchup": False,
    # A second round would only wait for the lease, and end with code 3.
    "max_active_runs": 1,
    # Not for 2, a wrong setting, nor for 4, a halted table: both want a person. The next round tries everything again by itself.
    "default_args": {"retries": 0},
    "tags": ["storage-consumer"],
}

with DAG("storage_consumer_on_this_machine", schedule=QUARTERLY, **COMMON):
    BashOperator(
        task_id="run_once",
        # `exec`, so that a task that is stopped stops the program and not a shell.
        bash_command=f"exec /opt/storage-consumer/bin/storage-consumer {' '.join(ONCE)}",
        env={"STORAGE_CONSUMER_DOWNSTREAM_PASSWORD": "{{ conn.storage_consumer_target.password }}"},
        append_env=True,
    )

with DAG("storage_consumer_as_a_pod", schedule=QUARTERLY, **COMMON):
    KubernetesPodOperator(
        task_id="run_once",
        name="storage-consumer",
        image="registry.example.com/storage-consumer:0.2.0",
        arguments=list(ONCE),
        service_account_name="storage-consumer",
        automount_service_account_token=False,
        on_finish_action="delete_pod",
        termination_grace_period=60,
        container_resources=k8s.V1ResourceRequirements(
            requests={"cpu": "1", "memory": "2Gi"}, limits={"memory": "4Gi"}
        ),
        security_context={
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
        },
        container_security_context={
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        volumes=[
            k8s.V1Volume(
                name="settings", config_map=k8s.V1ConfigMapVolumeSource(name="storage-consumer")
            ),
            k8s.V1Volume(
                name="secret",
                secret=k8s.V1SecretVolumeSource(secret_name="storage-consumer"),  # noqa: S106 - a name
            ),
            k8s.V1Volume(name="tmp", empty_dir=k8s.V1EmptyDirVolumeSource()),
            k8s.V1Volume(name="spark", empty_dir=k8s.V1EmptyDirVolumeSource()),
        ],
        volume_mounts=[
            k8s.V1VolumeMount(name="settings", mount_path="/etc/storage-consumer", read_only=True),
            k8s.V1VolumeMount(name="secret", mount_path="/run/storage-consumer", read_only=True),
            k8s.V1VolumeMount(name="tmp", mount_path="/tmp"),  # noqa: S108 - of the container
            k8s.V1VolumeMount(name="spark", mount_path="/var/lib/storage-consumer/spark"),
        ],
    )
