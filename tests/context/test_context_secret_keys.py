"""Which keys are secret: the words of credentials are, the words of language models are not."""

from __future__ import annotations

import pytest

from dlrl_core.context import looks_secret


def keys(table: str) -> list[str]:
    return table.split()


SECRET = keys(
    """
    token TOKEN access_token HF_TOKEN hf-token hfToken HFToken hftoken HUGGING_FACE_HUB_TOKEN GITHUB_TOKEN_RO
    HF_TOKEN_2 token2 WRITE_TOKEN auth_token authtoken refresh_token bot.token id_token api_tokens
    secret SECRET secrets client_secret mysecret AWS_SECRET_ACCESS_KEY secret_id secretValue
    password Password db_password dbpassword PGPASSWORD passwords passwd MYSQL_PWD db_pass smtp-pass pass pw
    passphrase
    api_key apikey api-key APIKey apiKey OPENAI_API_KEY OPENAIAPIKEY WANDB_API_KEY api_keys x-api-key api.key
    credential credentials GOOGLE_APPLICATION_CREDENTIALS aws_credentials creds
    private_key privateKey ssh_private_key access_key AWS_ACCESS_KEY_ID accesskey session_key signing_key
    encryption_key account_key AccountKey wandb_key wandb.key logger.wandb.key --logger.wandb.key ssh_key
    auth AUTH oauth OAuth2 authorization Authorization proxy-authorization basic_auth auth_header http.auth
    cookie set-cookie jwt bearer secrets.anything.at.all
    """
)

NOT_SECRET = keys(
    """
    tokenizer tokenizer_path hf_tokenizer detokenize max_tokens num_tokens n_tokens tokens token_level
    token_level_scores token_id token_ids token_mean token-mean pad_token pad_token_id eos_token eosToken
    eos_token_id bos_token unk_token sep_token mask_token image_token special_tokens placeholder_token
    reward_tokens max_token_len_per_gpu ppo_max_token_len_per_gpu loss_per_token num_token first_token
    next_token stop_token_ids ratio_of_valid_token balance_dp_token rollout_corr/chi2_token
    author authority authors authored author_email is_authorized authenticated
    key keys prompt_key input_key label_key output_key reward_fn_key image_key primary_key cache_key
    public_key metric_key data.prompt_key monkey keyboard turkey
    pass_rate pass@1 pass@k forward_pass num_pass bypass bypass_mode compass passed grpo_passk PWD OLDPWD pwd
    secretary token_file HF_TOKEN_PATH password_file auth_type auth_url secret_name private_key_path
    lr model.path trainer.n_gpus_per_node
    . ... 1 日本
    """
)


@pytest.mark.parametrize("key", SECRET)
def test_credential_is_secret(key: str) -> None:
    assert looks_secret(key)


@pytest.mark.parametrize("key", NOT_SECRET)
def test_word_of_a_training_config_is_not_secret(key: str) -> None:
    assert not looks_secret(key)


@pytest.mark.parametrize("key", [key for key in SECRET if key.islower()])
def test_case_of_a_separated_key_does_not_matter(key: str) -> None:
    assert looks_secret(key.upper())


def test_empty_key_is_not_secret() -> None:
    assert not looks_secret("")
