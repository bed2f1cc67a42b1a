"""The multimodal transformer over latents, video and text, in the topology of MMAudio."""
