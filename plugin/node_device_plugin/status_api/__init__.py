"""What the running plugin lets others see: metrics, health, readiness and its state, over HTTP and to systemd."""
