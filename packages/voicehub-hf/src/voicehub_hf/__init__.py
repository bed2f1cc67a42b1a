"""What VoiceHub model families share over transformers and peft.

Nothing is imported here: ``import voicehub_hf`` loads neither torch nor transformers. See
:mod:`voicehub_hf.encoders` (the CTC classes and their lengths), :mod:`voicehub_hf.features`
(waveforms to model input), :mod:`voicehub_hf.freezing`, :mod:`voicehub_hf.lora`,
:mod:`voicehub_hf.spec_augment`, :mod:`voicehub_hf.loading` and :mod:`voicehub_hf.export`.
"""
